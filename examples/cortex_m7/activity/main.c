/* Activities, personalised where they are worn: the net that the bundle carries knows other people;
   here it goes on training from this person's windows, which the fill callback takes straight from
   the sensor's counts. Half of the windows is kept for the figures before and after. */
#include "board.h"

#ifndef STEPS
#define STEPS 60
#endif
#define AXES 3
#define LENGTH 64
#define GAIN 4096 /* counts for 1 g */

/* What the sensor's driver collected while the wearer was told what to do. */
typedef struct { int32_t activity; int16_t counts[AXES][LENGTH]; } window;
extern const struct { uint32_t windows; window of[]; } recording;
void board_print(const char *text);
static union { uint64_t align; unsigned char bytes[ACTIVITY_MEMORY]; } memory;

static int fill(void *user, int split, int64_t sample, void *x, void *y) {
  (void)user;
  uint32_t half = recording.windows / 2, at = (uint32_t)sample + (split == 0 ? half : 0);
  const int16_t *counts = recording.of[at].counts[0];
  for (int e = 0; e < AXES * LENGTH; e++) ((float *)x)[e] = (float)counts[e] * (1.0f / GAIN);
  *(int32_t *)y = recording.of[at].activity;
  return 0;
}

static void print(const char *name, uint32_t value) {
  char text[12], *at = text + sizeof text - 1;
  *at = 0;
  do *--at = (char)('0' + value % 10); while ((value /= 10) != 0);
  board_print(name);
  board_print(at);
  board_print("\n");
}

/* How many of the windows that are kept are told right. */
static uint32_t told(activity *net) {
  uint32_t right = 0, half = recording.windows / 2;
  float x[AXES * LENGTH], out[ACTIVITY_OUTPUT];
  for (uint32_t k = 0; k < half; k++) {
    int32_t is;
    int best = 0;
    fill(NULL, 0, k, x, &is);
    if (activity_predict(net, x, 1, out) != ACTIVITY_DONE) return 0;
    for (int c = 1; c < ACTIVITY_OUTPUT; c++)
      if (out[c] > out[best]) best = c;
    right += best == is;
  }
  return right;
}

int main(void) {
  activity_report report;
  uint32_t half = recording.windows / 2;
  activity *net = activity_init(&memory, sizeof memory);
  if (net == NULL || activity_data(net, fill, NULL, half, 0)) return 1;
  if (board_store != NULL && activity_load(net, board_store) == ACTIVITY_FAILED) return 1;
  print("kept ", half);
  print("before ", told(net));
  activity_split(net, 4);
  activity_progress(net, &report);
  int64_t end = report.step + STEPS;
  /* At a constant rate, running statistics depend on the last minibatches. */
  if (activity_settings(net, ACTIVITY_LR, ACTIVITY_COSINE, end, 0, 0, 0)) return 1;
  for (; report.step < end; activity_progress(net, &report)) {
    int status = activity_poll(net); /* sensor, radio and watchdog have their turn here */
    if (status != ACTIVITY_MORE && status != ACTIVITY_DONE) return 1;
  }
  print("after ", told(net));
  if (board_store != NULL && activity_save(net, board_store) != ACTIVITY_DONE) return 1;
  return 0;
}
