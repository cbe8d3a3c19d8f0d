"""Where networks come from: our zoo, timm, torchvision, MONAI. One file a library, the only one to import it."""
