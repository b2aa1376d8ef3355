#include <pthread.h>
#include <sched.h>

static pthread_barrier_t begin, end;
static void *tape_now;
static void *worker(void *number) {
  for (;;) {
    pthread_barrier_wait(&begin);
    ${net}_work(tape_now, (int)(intptr_t)number, ${NET}_THREADS);
    pthread_barrier_wait(&end);
  }
  return NULL;
}
static void run(void *user, void *tape) {
  (void)user;
  tape_now = tape;
  pthread_barrier_wait(&begin);
  ${net}_work(tape, 0, ${NET}_THREADS);
  pthread_barrier_wait(&end);
}
static void give_way(void) { sched_yield(); }
static int start_threads(${net} *net) {
  pthread_t thread;
  pthread_attr_t attributes;
  if (pthread_barrier_init(&begin, NULL, ${NET}_THREADS)) return 1;
  if (pthread_barrier_init(&end, NULL, ${NET}_THREADS) || pthread_attr_init(&attributes)) return 1;
  if (pthread_attr_setstacksize(&attributes, 128 << 10)) return 1;
  for (intptr_t k = 1; k < ${NET}_THREADS; k++)
    if (pthread_create(&thread, &attributes, worker, (void *)k)) return 1;
  ${net}_threads(net, run, NULL, give_way);
  return 0;
}
