"""Coverage: convert every network of timm, torchvision and MONAI, or record why not."""
