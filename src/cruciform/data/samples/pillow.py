"""Import Pillow, or raise with the package to install."""

from cruciform.errors import MissingExtraError

try:
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError
except ImportError as error:
    raise MissingExtraError(f"images are read with Pillow ({error}): pip install 'cruciform[train]'") from error

__all__ = ["Pillow", "UnidentifiedImageError"]
