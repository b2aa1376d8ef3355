"""Field numbers and element types from onnx.proto."""

IR_VERSION, GRAPH = 1, 7  # of a ModelProto, and metadata.METADATA
# From this version on, initializers need not be inputs; weights that were made by nodes aren't.
OWN_INITIALIZERS = 4
NODES, INITIALIZERS, INPUTS, OUTPUTS, VALUES = 1, 5, 11, 12, 13  # of a GraphProto
READS, WRITES, OP_TYPE, ATTRIBUTES = 1, 2, 4, 5  # of a NodeProto
TENSOR, SUBGRAPH, FLOATS, SUBGRAPHS = 5, 6, 7, 11  # of an AttributeProto
DIMS, TYPE, TENSOR_NAME, RAW, EXTERNAL, LOCATION = 1, 2, 8, 9, 13, 14  # of a TensorProto
TYPED = (4, 10, 5)  # float_data, double_data, int32_data
FACTS = {DIMS, TYPE, TENSOR_NAME, 12, LOCATION, 16}  # no data; 12 and 16 are notes
NAME = 1  # of an attribute, an input, an output

BFLOAT16 = 16
# Element type of a tensor -> its numpy type in a file.
STORED = {
    1: "<f4", 2: "<u1", 3: "<i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2",
    11: "<f8", 12: "<u4", 13: "<u8",
}  # fmt: skip
