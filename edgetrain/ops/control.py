"""If with a condition that is known once the dimensions are bound: its branch takes its place."""

from .registry import OnnxNode, Subgraph, onnx_rule


@onnx_rule("If")
def if_(context, node) -> None:
    condition = context.const(node, 0)
    if condition is None or condition.size != 1:
        raise node.fail("a condition that depends on values", "a constant truth value")
    branch = node.attrs["then_branch" if condition.ravel()[0] else "else_branch"]
    if not isinstance(branch, Subgraph) or len(branch.outputs) < len(node.outputs):
        raise node.fail("a branch with too few outputs", f"{len(node.outputs)}")
    context.inline(branch)
    for name, output in zip(branch.outputs, node.outputs, strict=False):
        context.run(OnnxNode(node.name, "Identity", (name,), (output,)))
