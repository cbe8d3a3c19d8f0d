"""One ONNX graph that takes images one by one through its first part, and all of them together through the second.

The maps of one image fit the processor's caches where those of a batch do not; fully connected layers, which read
their weights once a batch, still see the batch. The number of images stays free. (ONNX's ``Scan``; the weights lie
inside its body, for ONNX Runtime brings only those into its own order of memory.)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto


def image_by_image(trunk: "ModelProto", head: "ModelProto | None") -> "ModelProto":
    """Joins two networks.

    Args:
        trunk: Takes exactly one image, with its axis of images; gives one result with such an axis.
        head: Takes the trunk's results for any number of images; None where there is nothing more to do.
    """
    import numpy as np
    from onnx import compose, helper
    from onnx.numpy_helper import from_array

    trunk = compose.add_prefix(trunk, "each_")
    (images,), (result,) = trunk.graph.input, trunk.graph.output
    shape = [size.dim_value for size in images.type.tensor_type.shape.dim][1:]
    found = [size.dim_value for size in result.type.tensor_type.shape.dim][1:]
    kind = images.type.tensor_type.elem_type
    body = helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["image", "each_axis"], [images.name]),
            *trunk.graph.node,
            helper.make_node("Squeeze", [result.name, "each_axis"], ["features"]),
        ],
        "image",
        [helper.make_tensor_value_info("image", kind, shape)],
        [helper.make_tensor_value_info("features", kind, found)],
        [*trunk.graph.initializer, from_array(np.array([0], dtype=np.int64), "each_axis")],
    )
    end = compose.add_prefix(head, "all_") if head is not None else None
    vectors = end.graph.input[0].name if end is not None else "output"
    graph = helper.make_graph(
        [
            helper.make_node("Scan", ["images"], [vectors], num_scan_inputs=1, body=body),
            *(end.graph.node if end is not None else ()),
        ],
        "network",
        [helper.make_tensor_value_info("images", kind, ["batch", *shape])],
        list(end.graph.output)
        if end is not None
        else [helper.make_tensor_value_info("output", kind, ["batch", *found])],
        list(end.graph.initializer) if end is not None else [],
    )
    return helper.make_model(graph, opset_imports=list(trunk.opset_import), ir_version=trunk.ir_version)
