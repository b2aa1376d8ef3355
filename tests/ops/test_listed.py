"""The list of trainable ONNX ops: losing one fails, instead of skipping the tests of its models."""

from edgetrain.ops.onnx_ops import onnx_names

LISTED = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization
Bernoulli Cast CastLike Ceil Celu Clip Col2Im Concat Conv ConvTranspose Cos Cosh CumSum DFT
DepthToSpace DequantizeLinear Div Dropout Einsum Elu Equal Erf Exp Expand Flatten Floor GRU Gather
GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater
GreaterOrEqual GridSample GroupNormalization HardSigmoid HardSwish Hardmax Identity If
InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log
LogSoftmax LpNormalization LpPool MatMul Max MaxPool Mean Min Mish Mod Mul Neg
NegativeLogLikelihoodLoss Not OneHot Or PRelu Pad Pow QuantizeLinear RMSNormalization RNN
RandomNormal RandomNormalLike RandomUniform RandomUniformLike Reciprocal ReduceL1 ReduceL2
ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
Relu Reshape Resize ReverseSequence RotaryEmbedding Round STFT ScatterElements ScatterND Selu
Shrink Sigmoid Sign Sin Sinh Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth
Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze
Upsample Where Xor
"""


def test_no_op_is_lost_and_new_ones_are_listed() -> None:
    assert onnx_names() == LISTED.split()
