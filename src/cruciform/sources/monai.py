"""MONAI's networks as a source: each in 2-D and 3-D, as ``UNet-2d`` and ``UNet-3d``, with usual options."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cruciform.sources.network_library import SOURCES, NetworkLibrary, checked_name, import_library

Options = Callable[[int], dict[str, Any]]
"""From the rank to what a network is usually given."""

CLASSIFIER: Options = lambda rank: {"spatial_dims": rank, "in_channels": 1, "out_channels": 2}  # noqa: E731
CLASSIFIER_3D: Options = lambda rank: {"spatial_dims": rank, "n_input_channels": 1, "num_classes": 2}  # noqa: E731
STEPS = (16, 32, 64, 128)


def _unet(rank: int) -> dict[str, Any]:
    return {**CLASSIFIER(rank), "channels": STEPS, "strides": (2, 2, 2), "num_res_units": 2}


def _dynunet(rank: int) -> dict[str, Any]:
    return {
        **CLASSIFIER(rank),
        "kernel_size": [3, 3, 3, 3],
        "strides": [1, 2, 2, 2],
        "upsample_kernel_size": [2, 2, 2],
    }


def _attention(rank: int) -> dict[str, Any]:
    return {**CLASSIFIER(rank), "channels": STEPS, "strides": (2, 2, 2)}


def _senet(rank: int) -> dict[str, Any]:
    return {"spatial_dims": rank, "in_channels": 1, "num_classes": 2}


def _efficientnet(size: int) -> dict[str, Any]:
    return {"model_name": f"efficientnet-b{size}", "pretrained": False}


def _autoencoder(rank: int) -> dict[str, Any]:
    return {**CLASSIFIER(rank), "channels": (16, 32, 64), "strides": (2, 2, 2)}


MONAI_NETWORKS: dict[str, tuple[str, Options]] = {
    "UNet": ("UNet", _unet),
    "BasicUNet": ("BasicUNet", CLASSIFIER),
    "BasicUNetPlusPlus": ("BasicUNetPlusPlus", CLASSIFIER),
    "AttentionUnet": ("AttentionUnet", _attention),
    "DynUNet": ("DynUNet", _dynunet),
    "SegResNet": ("SegResNet", CLASSIFIER),
    "SegResNetDS": ("SegResNetDS", CLASSIFIER),
    "VNet": ("VNet", lambda rank: {**CLASSIFIER(rank), "dropout_dim": rank}),
    "HighResNet": ("HighResNet", CLASSIFIER),
    "AutoEncoder": ("AutoEncoder", _autoencoder),
    "DenseNet121": ("DenseNet121", CLASSIFIER),
    "DenseNet169": ("DenseNet169", CLASSIFIER),
    "DenseNet201": ("DenseNet201", CLASSIFIER),
    "DenseNet264": ("DenseNet264", CLASSIFIER),
    "ResNet10": ("resnet10", CLASSIFIER_3D),
    "ResNet18": ("resnet18", CLASSIFIER_3D),
    "ResNet34": ("resnet34", CLASSIFIER_3D),
    "ResNet50": ("resnet50", CLASSIFIER_3D),
    "ResNet101": ("resnet101", CLASSIFIER_3D),
    "ResNet152": ("resnet152", CLASSIFIER_3D),
    "ResNet200": ("resnet200", CLASSIFIER_3D),
    "SENet154": ("SENet154", _senet),
    "SEResNet50": ("SEResNet50", _senet),
    "SEResNet101": ("SEResNet101", _senet),
    "SEResNet152": ("SEResNet152", _senet),
    "SEResNext50": ("SEResNext50", _senet),
    "SEResNext101": ("SEResNext101", _senet),
    "EfficientNetB0": ("EfficientNetBN", lambda rank: {**_senet(rank), **_efficientnet(0)}),
    "EfficientNetB4": ("EfficientNetBN", lambda rank: {**_senet(rank), **_efficientnet(4)}),
    "FlexibleUNet": (
        "FlexibleUNet",
        lambda rank: {**CLASSIFIER(rank), "backbone": "efficientnet-b0", "pretrained": False},
    ),
    "SwinUNETR": ("SwinUNETR", lambda rank: {**CLASSIFIER(rank), "feature_size": 12}),
    "UNETR": ("UNETR", lambda rank: {**CLASSIFIER(rank), "img_size": 64}),
    "MedNeXt": ("MedNeXt", CLASSIFIER),
    "PatchDiscriminator": (
        "PatchDiscriminator",
        lambda rank: {**CLASSIFIER(rank), "channels": 16, "num_layers_d": 3},
    ),
    "AHNet": ("AHNet", lambda rank: {**CLASSIFIER(rank), "psp_block_num": 3, "upsample_mode": "transpose"}),
    "DiffusionModelUNet": (
        "DiffusionModelUNet",
        lambda rank: {
            **CLASSIFIER(rank),
            "channels": (32, 64, 64),
            "attention_levels": (False, False, False),
            "num_res_blocks": 1,
        },
    ),
    "AutoencoderKL": (
        "AutoencoderKL",
        lambda rank: {
            **CLASSIFIER(rank),
            "channels": (32, 64, 64),
            "attention_levels": (False, False, False),
            "num_res_blocks": (1, 1, 1),
            "latent_channels": 4,
        },
    ),
    "VQVAE": ("VQVAE", CLASSIFIER),
    "RegUNet": (
        "RegUNet",
        lambda rank: {**CLASSIFIER(rank), "num_channel_initial": 8, "depth": 3},
    ),
    "DAF3D": ("DAF3D", lambda rank: {"in_channels": 1, "out_channels": 2, "visual_output": False}),
}
# Networks that exist in one rank only.
ONLY = {"DAF3D": (3,)}
SIDES = {"AHNet": 128, "HighResNet": 32}  # of the input, where it is not the usual 64
TAKES_STEPS = ("DiffusionModelUNet",)


class AtFirstStep(nn.Module):
    """A diffusion model at its first time step, so that it takes one tensor like all others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        """Return the output of the model."""
        return self.model(x, torch.zeros(x.shape[0], device=x.device, dtype=torch.long))


def _nets() -> Any:
    return import_library("monai.networks.nets", "volumes")


def _names() -> list[str]:
    return [f"{name}-{rank}d" for name in MONAI_NETWORKS for rank in ONLY.get(name, (2, 3))]


def _build(name: str, options: Mapping[str, Any]) -> nn.Module:
    base, rank = checked_name(name, _names(), "monai")[:-3], int(name[-2])
    maker, usual = MONAI_NETWORKS[base]
    model: nn.Module = getattr(_nets(), maker)(**{**usual(rank), **options})
    return AtFirstStep(model) if base in TAKES_STEPS else model


def _input_size(name: str, model: nn.Module) -> tuple[int, ...]:
    base, rank = name[:-3], int(name[-2])
    return (1, *[SIDES.get(base, 64)] * rank)


SOURCES.add("monai", NetworkLibrary(_names, _build, _input_size))
