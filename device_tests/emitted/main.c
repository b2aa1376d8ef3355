/* Trains a few minibatches with an emitted Program and prints a checksum of its state. */
#include <stdint.h>
#include "program.h"

void say(const char *name, uint32_t value);
uint32_t ticks(void);

void et_train(int64_t *args);
void et_digest(int64_t *args);
void et_walk(int64_t *args);
extern const void *et_find(int which);

__asm__(".section .rodata\n.global start_image\n.balign 64\nstart_image: .incbin \"start.bin\"\n"
        ".global samples\n.balign 64\nsamples: .incbin \"samples.bin\"\n.balign 4\n.text\n");
extern const unsigned char start_image[], samples[];

static unsigned char arena[ARENA] __attribute__((aligned(64)));
static int64_t plan[PLAN_WORDS], operands[5][5], fields[FIELDS][FIELD_WORDS];
static int64_t parts[PARTS][2], zeroed[ZEROED + 1][2];
static int64_t barrier[24];

static int64_t at(const void *p) { return (int64_t)(uintptr_t)p; }

static void prepare(void) {
  static const uint32_t rows[FIELDS][7] = FIELD_ROWS, spans[PARTS][2] = PART_ROWS;
  static const uint32_t zeros[ZEROED + 1][2] = ZERO_ROWS, tapes[5] = TAPE_NBYTES;
  for (uint32_t k = 0; k < START_NBYTES; k++) arena[k] = start_image[k];
  for (int k = 0; k < 5; k++) {
    if (!tapes[k]) continue;
    operands[k][0] = at(arena);
    operands[k][1] = at(et_find(k));
    operands[k][2] = operands[k][1] + tapes[k];
    operands[k][3] = at(et_find(5));
    operands[k][4] = at(barrier);
    plan[FIRST_TAPE + k] = at(operands[k]);
  }
  for (int k = 0; k < FIELDS; k++) {
    fields[k][STAGED] = at(arena + rows[k][0]);
    fields[k][STAGED_TYPE] = fields[k][RAW_TYPE] = rows[k][1];
    fields[k][SIZE] = rows[k][2];
    fields[k][RAW] = at(samples + rows[k][3]);
    fields[k][RAW_STRIDE] = rows[k][4];
    fields[k][CHANNELS] = fields[k][INNER] = 1;
  }
  for (int k = 0; k < PARTS; k++) parts[k][0] = at(arena + spans[k][0]), parts[k][1] = spans[k][1];
  for (int k = 0; k < ZEROED; k++) zeroed[k][0] = at(arena + zeros[k][0]), zeroed[k][1] = zeros[k][1];
  plan[CTL] = at(arena + CTL_OFFSET);
  plan[RUN_TAPE] = at(et_find(7));
  plan[STRIDES] = at(et_find(6));
  plan[MINIBATCH_WORD] = MINIBATCH, plan[MICROBATCH_WORD] = MICROBATCH;
  plan[TARGETS_PER_SAMPLE] = TARGETS, plan[SAMPLES_WORD] = SAMPLES;
  plan[FIELDS_WORD] = FIELDS, plan[TRAIN_FIELDS] = at(fields);
  plan[ZERO] = at(zeroed), plan[ZEROS] = ZEROED;
  plan[POLL_PARTS] = 3;
}

int main(void) {
  prepare();
  for (int step = 0; step < STEPS; step++) {
    uint32_t before = ticks();
    int64_t args[2] = {at(plan), step % 2 == 0};  /* every other one in pieces */
    do et_train(args); while (plan[STATUS] == -6); /* MORE */
    say("ticks", ticks() - before);
    say("status", (uint32_t)plan[STATUS]);
  }
  int64_t crc = 0, args[4] = {at(&crc), at(parts), PARTS, 0};
  et_digest(args);
  say("state", (uint32_t)crc);
  return 0;
}
