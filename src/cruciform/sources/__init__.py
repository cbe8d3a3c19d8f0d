"""Sources of networks: our zoo, timm, torchvision, MONAI. One file per library, the only one to import it."""
