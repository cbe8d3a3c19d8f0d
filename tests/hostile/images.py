"""Image files, mutated: decoded to an image of the size that was asked for, or refused."""

import io
from functools import cache
from pathlib import Path

import numpy as np
from kind import Silent, Trial, hostile
from mutate import mutate_bytes
from PIL import Image as Pillow
from PIL import PngImagePlugin

from cruciform.data.sets.folder import FolderSource, decode

SIDES = (None, None, 1, 32, 300)


def prepare(folder: Path) -> None:
    """Writes some forty images: every mode and option of the formats that are read, and some that are not."""
    numbers = np.random.default_rng(0)
    smooth = np.linspace(0, 255, 48 * 40 * 3).reshape(40, 48, 3) + numbers.normal(0, 20, (40, 48, 3))
    color = Pillow.fromarray(smooth.clip(0, 255).astype(np.uint8))
    saved = {}

    def add(name: str, image: Pillow.Image, **options: object) -> None:
        saved[name] = _encoded(image, name.rpartition(".")[2], **options)

    for quality in (5, 75, 100):
        add(f"baseline{quality}.jpeg", color, quality=quality)
    add("progressive.jpeg", color, progressive=True)
    add("optimized.jpeg", color, optimize=True, subsampling=0)
    add("restarts.jpeg", color, restart_marker_blocks=2)
    add("cmyk.jpeg", color.convert("CMYK"))
    add("grey.jpeg", color.convert("L"))
    for turn in range(1, 9):
        exif = Pillow.Exif()
        exif[0x112], exif[0x10F] = turn, "maker" * 20
        add(f"turned{turn}.jpeg", color, exif=exif)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        image = color.convert("L").convert("I;16") if mode == "I;16" else color.convert(mode)
        add(f"mode{mode.replace(';', '')}.png", image)
    notes = PngImagePlugin.PngInfo()
    notes.add_text("a", "b" * 500, zip=True)
    notes.add_itxt("c", "d" * 50)
    add("notes.png", color, pnginfo=notes, icc_profile=bytes(range(256)) * 4, dpi=(72, 72))
    add("clear.png", color.convert("P"), transparency=3)
    add("frames.png", color, save_all=True, append_images=[color.rotate(90), color])
    for name, options in (("lossy", {}), ("lossless", {"lossless": True}), ("exact", {"quality": 1, "exact": True})):
        add(f"{name}.webp", color.convert("RGBA"), **options)
    add("frames.webp", color, save_all=True, append_images=[color.rotate(90)])
    for name in ("gif", "bmp", "tiff", "ico", "ppm"):
        add(f"other.{name}", color)
    for name, data in saved.items():
        (folder / name).write_bytes(data)


def _encoded(image: Pillow.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


@cache
def seeds(folder: Path) -> list[tuple[str, bytes]]:
    return [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]


@hostile("image bytes", 10_000, prepare)
def attack_decoder(trial: Trial) -> None:
    name, data = trial.random.choice(seeds(trial.seeds))
    how, bad = mutate_bytes(data, trial.random)
    if trial.random.random() < 0.1:
        _, bad = mutate_bytes(bad, trial.random)
    side = trial.random.choice(SIDES)
    check(decode(bad, side), side)
    if how == "truncate" and len(bad) < len(data) // 2 and not name.startswith("frames"):
        raise Silent(f"{name}, cut to {len(bad)} of {len(data)} bytes, was decoded")


def check(image: np.ndarray, side: int | None) -> None:
    """Raises unless an image is what all that follows relies on."""
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3 or not image.size:
        raise Silent(f"decoded to {image.shape} of {image.dtype}")
    if side and min(image.shape[:2]) != side:
        raise Silent(f"decoded to {image.shape}, though the short side should be {side}")


@hostile("image folders", 600, prepare)
def attack_folder(trial: Trial) -> None:
    random = trial.random
    place = trial.scratch / "class"
    place.mkdir(parents=True)
    whole = seeds(trial.seeds)[0][1]
    (place / "a.jpg").write_bytes(whole)
    odd_file(place / "b.jpg", trial)
    source = FolderSource(trial.scratch, short_side=random.choice(SIDES))
    check(source[0].image, None)
    check(source[1].image, None)


def odd_file(path: Path, trial: Trial) -> None:
    """Puts something where an image should be."""
    import os

    random = trial.random
    how = random.randrange(9)
    if how == 0:
        os.mkfifo(path)
    elif how == 1:
        path.symlink_to("/dev/zero")
    elif how == 2:
        path.symlink_to(path)
    elif how == 3:
        path.mkdir()
    elif how == 4:
        path.symlink_to(trial.scratch / "nowhere")
    elif how == 5:
        with path.open("wb") as file:
            file.truncate(random.choice((2**26 + 1, 2**40)))
    elif how == 6:
        path.write_bytes(b"")
    elif how == 7:
        path.symlink_to("/proc/self/mem")
    else:
        path.write_bytes(mutate_bytes(random.choice(seeds(trial.seeds))[1], random)[1])
