"""An ONNX graph that runs the trunk image by image and the head on the whole batch.

The feature maps of one image fit the caches where those of a batch do not; linear layers, which read their weights once
per batch, still get the batch. The batch size stays dynamic. (ONNX's ``Scan``; the weights are inside its body, because
ONNX Runtime converts only those to its own memory format.)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto


def image_by_image(trunk: "ModelProto", head: "ModelProto | None") -> "ModelProto":
    """Join two ONNX graphs.

    Args:
        trunk: Takes a batch of one image and returns a batch of one result.
        head: Takes the trunk's results of any batch size; None where nothing follows.
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
