from itertools import combinations

from cruciform.plot.labels import Box, choose_places

ROOM = Box(0, 0, 400, 300)


def test_names_of_a_crowd_cover_neither_each_other_nor_a_point() -> None:
    points = [(150.0, 150.0), (156.0, 151.0), (152.0, 160.0), (170.0, 149.0), (163.0, 140.0)]
    marks = [Box(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    places = choose_places(points, [(50.0, 10.0)] * 5, ROOM, taken=marks)
    assert all(a.box.overlap(b.box) == 0 for a, b in combinations(places, 2))
    assert all(place.box.overlap(mark) == 0 for place in places for mark in marks)


def test_names_stay_in_the_room() -> None:
    points = [(1.0, 1.0), (399.0, 299.0), (399.0, 1.0)]
    for place in choose_places(points, [(60.0, 10.0)] * 3, ROOM):
        assert place.box.outside(ROOM) == 0


def test_of_two_points_side_by_side_the_left_one_is_named_on_the_left() -> None:
    # The order in which they are given must not matter: the second used to take what the first left over.
    for flip in (False, True):
        points = [(200.0, 150.0), (208.0, 150.0)]
        walls = [Box(150, 160, 260, 300), Box(150, 0, 260, 140)]  # nothing is free but left and right
        marks = [Box(x - 3, y - 3, x + 3, y + 3) for x, y in points]
        given = points[::-1] if flip else points
        left, right = choose_places(given, [(40.0, 10.0)] * 2, ROOM, taken=[*walls, *marks])[:: -1 if flip else 1]
        assert left.box.right < 200 < 208 < right.box.left


def test_a_lonely_name_stands_close_to_its_point() -> None:
    (place,) = choose_places([(100.0, 100.0)], [(30.0, 8.0)], ROOM)
    assert place.box.distance((100.0, 100.0)) < 5


def test_no_points_need_no_places() -> None:
    assert choose_places([], [], ROOM) == []
