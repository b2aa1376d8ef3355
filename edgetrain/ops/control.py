"""If, when its condition is known at compile time: replaced by the chosen branch."""

from .registry import OnnxNode, Subgraph, onnx_rule


@onnx_rule("If")
def if_(context, node) -> None:
    condition = context.const(node, 0)
    if condition is None or condition.size != 1:
        raise node.fail("the condition is not constant", "a constant boolean")
    branch = node.attrs["then_branch" if condition.ravel()[0] else "else_branch"]
    if not isinstance(branch, Subgraph) or len(branch.outputs) < len(node.outputs):
        raise node.fail("a branch has too few outputs", f"{len(node.outputs)}")
    context.inline(branch)
    for name, output in zip(branch.outputs, node.outputs, strict=False):
        context.run(OnnxNode(node.name, "Identity", (name,), (output,)))
