/* The digits in AIfES (Fraunhofer IMS), on the board that a bundle runs on: the same layers, data,
   minibatch, steps, momentum and learning rate, in fp32. It has no mean over pixels: the last one is
   a maximum, of as many. Its samples must be float32 in RAM when a minibatch runs. */
#include <stdlib.h>
#include <string.h>
#include "aifes.h"
#include "board.h"

#define SIDE 8
#define PIXELS 64
#define CLASSES 10
void board_print(const char *text);
extern const unsigned char digits_samples[];
static struct { uint32_t magic, train, held, type; float factor, shift; uint32_t bytes, zero; } head;

static float x[BATCH * PIXELS], y[BATCH * CLASSES];
static uint64_t parameters[PARAMETERS / 8 + 1], working[WORKING / 8 + 1];

/* AIfES draws first weights with rand; newlib's takes a heap. */
static uint32_t drawn = 1;
void srand(unsigned seed) { drawn = seed; }
int rand(void) {
  drawn = drawn * 1664525 + 1013904223;
  return (int)(drawn >> 1);
}

static void number(const char *name, uint32_t value) {
  char text[12], *at = text + sizeof text - 1;
  *at = 0;
  do *--at = (char)('0' + value % 10); while ((value /= 10) != 0);
  board_print(name);
  board_print(at);
  board_print("\n");
}

static int32_t sample(uint32_t which, uint32_t row) {
  const unsigned char *record = digits_samples + sizeof head + which * head.bytes;
  int32_t label;
  for (int e = 0; e < PIXELS; e++) x[row * PIXELS + e] = record[e] * head.factor + head.shift;
  memcpy(&label, record + head.bytes - 4, 4);
  for (int c = 0; c < CLASSES; c++) y[row * CLASSES + c] = c == label;
  return label;
}

/* An order of the samples for each epoch: a stride that shares no divisor with their number. */
static uint32_t shuffled(uint32_t position) {
  uint32_t epoch = position / head.train, stride = 997 + 2 * epoch * 101;
  while (head.train % stride == 0 || stride % 3 == 0) stride += 2;
  return (uint32_t)(((uint64_t)(position % head.train) * stride + epoch * 31) % head.train);
}

int main(void) {
  memcpy(&head, digits_samples, sizeof head);
  uint16_t shape[] = {BATCH, 1, SIDE, SIDE}, target_shape[] = {BATCH, CLASSES};
  aitensor_t inputs = AITENSOR_4D_F32(shape, x), targets = AITENSOR_2D_F32(target_shape, y);
  ailayer_input_f32_t input = AILAYER_INPUT_F32_A(4, shape);
  ailayer_conv2d_t conv[3] = {
    AILAYER_CONV2D_F32_A(8, HW(3, 3), HW(1, 1), HW(1, 1), HW(1, 1)),
    AILAYER_CONV2D_F32_A(16, HW(3, 3), HW(1, 1), HW(1, 1), HW(1, 1)),
    AILAYER_CONV2D_F32_A(24, HW(3, 3), HW(1, 1), HW(1, 1), HW(1, 1)),
  };
  ailayer_batch_norm_f32_t norm[3] = {
    AILAYER_BATCH_NORM_F32_A(0.9f, 1e-5f), AILAYER_BATCH_NORM_F32_A(0.9f, 1e-5f),
    AILAYER_BATCH_NORM_F32_A(0.9f, 1e-5f),
  };
  ailayer_relu_f32_t relu[3] = {AILAYER_RELU_F32_A(), AILAYER_RELU_F32_A(), AILAYER_RELU_F32_A()};
  ailayer_maxpool2d_t pool[3] = {
    AILAYER_MAXPOOL2D_F32_A(HW(2, 2), HW(2, 2), HW(0, 0)),
    AILAYER_MAXPOOL2D_F32_A(HW(2, 2), HW(2, 2), HW(0, 0)),
    AILAYER_MAXPOOL2D_F32_A(HW(2, 2), HW(2, 2), HW(0, 0)),
  };
  ailayer_flatten_t flat = AILAYER_FLATTEN_F32_A();
  ailayer_dense_f32_t dense = AILAYER_DENSE_F32_A(CLASSES);
  ailayer_softmax_f32_t softmax = AILAYER_SOFTMAX_F32_A();
  ailoss_crossentropy_f32_t entropy;
  aimodel_t model;
  ailayer_t *last = model.input_layer = ailayer_input_f32_default(&input);
  for (int k = 0; k < 3; k++) {
    last = ailayer_conv2d_chw_f32_default(&conv[k], last);
    last = ailayer_batch_norm_cfirst_f32_default(&norm[k], last);
    last = ailayer_relu_f32_default(&relu[k], last);
    last = ailayer_maxpool2d_chw_f32_default(&pool[k], last);
  }
  last = ailayer_flatten_f32_default(&flat, last);
  last = ailayer_dense_f32_default(&dense, last);
  model.output_layer = ailayer_softmax_f32_default(&softmax, last);
  model.loss = ailoss_crossentropy_mean_f32_default(&entropy, model.output_layer);
  aialgo_compile_model(&model);
  aiopti_sgd_f32_t sgd = AIOPTI_SGD_F32(RATE);
  sgd.momentum = 0.9f;
  aiopti_t *optimizer = aiopti_sgd_f32_default(&sgd);
  uint32_t parameter_bytes = aialgo_sizeof_parameter_memory(&model);
  uint32_t working_bytes = aialgo_sizeof_training_memory(&model, optimizer);
  number("parameters ", parameter_bytes);
  number("working ", working_bytes);
  if (parameter_bytes > sizeof parameters || working_bytes > sizeof working) return 0;
  aialgo_distribute_parameter_memory(&model, parameters, parameter_bytes);
  srand(1);
  aialgo_initialize_parameters_model(&model);
  aialgo_schedule_training_memory(&model, optimizer, working, working_bytes);
  aialgo_init_model_for_training(&model, optimizer);
  uint32_t begun = *(volatile uint32_t *)COUNTER;
  for (uint32_t step = 0; step < STEPS; step++) {
    for (uint32_t row = 0; row < BATCH; row++) sample(shuffled(step * BATCH + row), row);
    aialgo_train_model(&model, &inputs, &targets, optimizer, BATCH);
  }
  number("trained ", *(volatile uint32_t *)COUNTER - begun);
  uint32_t correct = 0;
  for (uint32_t first = 0; first < head.held; first += BATCH) {
    uint32_t count = head.held - first < BATCH ? head.held - first : BATCH;
    int32_t labels[BATCH];
    float out[BATCH * CLASSES];
    aitensor_t outputs = AITENSOR_2D_F32(target_shape, out);
    for (uint32_t row = 0; row < BATCH; row++)
      labels[row] = sample(head.train + first + (row < count ? row : 0), row);
    aialgo_inference_model(&model, &inputs, &outputs);
    for (uint32_t row = 0; row < count; row++) {
      int best = 0;
      for (int c = 1; c < CLASSES; c++)
        if (out[row * CLASSES + c] > out[row * CLASSES + best]) best = c;
      correct += best == labels[row];
    }
  }
  number("accuracy*10000 ", (uint32_t)(10000.0f * correct / head.held));
  return 0;
}
