"""Mutators: how good bytes and good data become bad ones, by the random numbers that they are given."""

import json
from random import Random
from typing import Any

NUMBERS = (
    0,
    1,
    -1,
    2,
    255,
    256,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**30,
    0.5,
    -0.0,
)
ODD = (*NUMBERS, 1e308, -1e308, float("nan"), float("inf"), None, True, False, "", "0", "nan", "-1", "None", "..", "/")
TEXTS = ("../../../etc/passwd", "/etc/passwd", "C:\\x", "a\0b", "\ud800", "ä" * 300, "x" * 20_000, "__class__",
         "os.system", "{0.__class__}", "%s%n", "step-00000009", "manifest.json", "timm:resnet18", "pipe:id",
         "file:///etc/passwd", "http://127.0.0.1:9/x", "cross:full=1e99", "9" * 5000, "1e999", "\u202e",
         "' OR 1=1", "$(id)", "`id`")  # fmt: skip


def mutate_bytes(data: bytes, random: Random) -> tuple[str, bytes]:
    """Returns what was done, and what came of it."""
    how = random.choice(MUTATORS)
    return how.__name__.strip("_"), how(data, random)


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))] if data else data


def _flip(data: bytes, random: Random) -> bytes:
    made = bytearray(data)
    for _ in range(random.randint(1, 16) if made else 0):
        made[random.randrange(len(made))] ^= 1 << random.randrange(8)
    return bytes(made)


def _zero(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    length = random.randint(1, 512)
    return data[:start] + bytes(len(data[start : start + length])) + data[start + length :]


def _scramble(data: bytes, random: Random) -> bytes:
    start, length = random.randrange(len(data) + 1), random.randint(1, 64)
    return data[:start] + random.randbytes(len(data[start : start + length])) + data[start + length :]


def _insert(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + random.randbytes(random.randint(1, 64)) + data[start:]


def _repeat(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    piece = data[start : start + random.randint(1, 256)]
    return data[:start] + piece * random.randint(2, 20) + data[start:]


def _cut(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + data[start + random.randint(1, 64) :]


def _number(data: bytes, random: Random) -> bytes:
    """Puts an extreme number where a length or an offset may be."""
    width = random.choice((1, 2, 4, 8))
    value = random.choice((0, 1, 2 ** (8 * width) - 1, 2 ** (8 * width - 1), 2 ** (8 * width - 1) - 1))
    start = random.randrange(max(1, len(data)))
    return data[:start] + value.to_bytes(width, random.choice(("little", "big"))) + data[start + width :]


MUTATORS = (_truncate, _flip, _flip, _zero, _scramble, _insert, _repeat, _cut, _number)


def mutate_json(data: Any, random: Random) -> bytes:
    """Returns JSON of data that was changed in some places, or JSON that is none."""
    if random.random() < 0.25:
        return _broken_json(json.dumps(data).encode(), random)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = change(data, random)
    return json.dumps(data, ensure_ascii=random.random() < 0.8).encode("utf-8", "surrogatepass")


def change(data: Any, random: Random) -> Any:
    """Returns plain data with one place changed, wherever it lies."""
    if isinstance(data, dict) and data and random.random() < 0.85:
        return _change_dict(data, random)
    if isinstance(data, list) and data and random.random() < 0.85:
        made = list(data)
        place = random.randrange(len(made))
        if random.random() < 0.7:
            made[place] = change(made[place], random)
        else:
            made = random.choice((made[:place], made + made, made * 50, [made], [*made, odd(random)]))
        return made
    return odd(random)


def _change_dict(data: dict[str, Any], random: Random) -> dict[str, Any]:
    made = dict(data)
    key = random.choice(list(made))
    draw = random.random()
    if draw < 0.7:
        made[key] = change(made[key], random)
    elif draw < 0.8:
        del made[key]
    elif draw < 0.9:
        made[random.choice((*TEXTS[:6], "extra", "__proto__", ""))] = odd(random)
    else:
        made[random.choice(list(made))] = made[key]
    return made


def odd(random: Random) -> Any:
    """Returns a value that nobody expects."""
    draw = random.random()
    if draw < 0.5:
        return random.choice(ODD)
    if draw < 0.75:
        return random.choice(TEXTS)
    if draw < 0.85:
        return [odd(random) for _ in range(random.randint(0, 4))]
    if draw < 0.95:
        return {str(random.choice(TEXTS[:8])): odd(random) for _ in range(random.randint(0, 3))}
    nested: Any = []
    for _ in range(random.choice((10, 200))):
        nested = [nested]
    return nested


def _broken_json(text: bytes, random: Random) -> bytes:
    deep = random.choice((1_000, 100_000))
    return random.choice(
        (
            lambda: mutate_bytes(text, random)[1],
            lambda: mutate_bytes(text, random)[1],
            lambda: b"[" * deep,
            lambda: b'{"a":' * deep + b"1" + b"}" * deep,
            lambda: text[:-1] + b', "files": {}}',
            lambda: text + text,
            lambda: b"\xef\xbb\xbf" + text,
            lambda: text.decode().encode("utf-16"),
            lambda: text.replace(b"1", b"9" * 5_000),
            lambda: text.replace(b"1", b"1e999"),
            lambda: text.replace(b'"', b"'"),
            lambda: b"\0" * 100,
            lambda: b"",
            lambda: b"null",
        )
    )()
