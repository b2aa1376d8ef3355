/* sensor.py in C: looks at each window as it comes in, and trains on the last ones.
     ./sensor [WINDOWS [STATE]]     STATE: a file that the state is kept in
   read_sensor makes its readings up; put the driver of your sensor there. */
#define _POSIX_C_SOURCE 200809L
#include "net.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { READINGS = 32, AXES = 3, KEPT = 64, EVERY = 4 };

static union { double align; unsigned char bytes[NET_MEMORY]; } memory;
static float x[KEPT][READINGS * AXES];
static int32_t y[KEPT];

static int label(uint32_t window) { return (int)(window / 8 % 4); }

static void read_sensor(uint32_t window, float *out) {
  uint32_t noise = window * 2654435761u + 1;
  for (int t = 0; t < READINGS; t++)
    for (int axis = 0; axis < AXES; axis++) {
      noise = noise * 1664525u + 1013904223u;
      int wave = (int)((uint32_t)(t * (label(window) + 1) * (axis + 1)) + window) % 32 - 16;
      *out++ = (float)(wave * 4 + (int)(noise >> 24) % 33 - 16) / 64;
    }
}

/* What the net asks for a sample of the last KEPT windows by. */
static int fill(void *user, int split, int64_t sample, void *to, void *target) {
  (void)user, (void)split;
  for (int k = 0; k < READINGS * AXES; k++) ((float *)to)[k] = x[sample][k];
  *(int32_t *)target = y[sample];
  return 0;
}

/* Two slots in a file, for net_save and net_load: a power cut leaves one that is good. */
static int erase(void *user, int slot) {
  static const unsigned char gone[64];
  int fd = *(int *)user;
  return pwrite(fd, gone, 64, (off_t)slot * NET_STORED) != 64 || fsync(fd);
}
static int write_state(void *user, int slot, uint32_t offset, const void *data, uint32_t bytes) {
  int fd = *(int *)user;
  if (offset == 0 && fsync(fd)) return 1;
  if (pwrite(fd, data, bytes, (off_t)slot * NET_STORED + offset) != (ssize_t)bytes) return 1;
  return offset == 0 && fsync(fd);
}
static int read_state(void *user, int slot, uint32_t offset, void *data, uint32_t bytes) {
  return pread(*(int *)user, data, bytes, (off_t)slot * NET_STORED + offset) != (ssize_t)bytes;
}

static int fail(const char *what) {
  fprintf(stderr, "sensor: %s\n", what);
  return 1;
}

int main(int argc, char **argv) {
  long windows = argc > 1 ? atol(argv[1]) : 512;
  int fd = argc > 2 ? open(argv[2], O_RDWR | O_CREAT, 0666) : -1, right = 0;
  const net_store store = {&fd, erase, write_state, read_state};
  net *net = net_init(&memory, sizeof memory);
  if (net == NULL || net_data(net, fill, NULL, KEPT, 0)) return fail("the net does not begin");
  net_settings(net, NET_LR, NET_CONSTANT, windows, 0, 0, 0);
  if (fd >= 0 && net_load(net, &store) == NET_FAILED) return fail("the state cannot be read");
  for (uint32_t window = 0; window < (uint32_t)windows; window++) {
    float found[READINGS * AXES], scores[NET_OUTPUT];
    int best = 0;
    read_sensor(window, found);
    if (window >= KEPT) {
      if (net_predict(net, found, 1, scores) != NET_DONE) return fail("a window was refused");
      for (int k = 1; k < NET_OUTPUT; k++) if (scores[k] > scores[best]) best = k;
      right += best == label(window);
    }
    for (int k = 0; k < READINGS * AXES; k++) x[window % KEPT][k] = found[k];
    y[window % KEPT] = label(window);
    if (window >= KEPT && window % EVERY == EVERY - 1 && net_step(net) != NET_DONE)
      return fail("a minibatch was discarded");
    if (window >= KEPT && window % 64 == 63) {
      printf("window %" PRIu32 ": %d of 64 right\n", window + 1, right);
      right = 0;
    }
  }
  if (fd >= 0 && net_save(net, &store) != NET_DONE) return fail("the state was not kept");
  printf("digest %08" PRIx32 "\n", net_digest(net));
  return 0;
}
