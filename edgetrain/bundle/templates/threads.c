#include <pthread.h>
#include <sched.h>

/* Threads spin for a few tenths of a millisecond before they sleep, because the next tape usually
   starts soon. A tape ends with a barrier, so nothing here waits for its end. */
enum { SPIN = 1000000 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static unsigned job; /* tapes started */
static void *tape_now;
static void *worker(void *number) {
  for (unsigned seen = 0;; seen++) {
    for (int turn = 1; turn < SPIN && __atomic_load_n(&job, __ATOMIC_ACQUIRE) == seen; turn++)
      if (turn % 2048 == 0) sched_yield(); /* the caller may need this processor */
    if (__atomic_load_n(&job, __ATOMIC_ACQUIRE) == seen) {
      pthread_mutex_lock(&lock);
      while (__atomic_load_n(&job, __ATOMIC_ACQUIRE) == seen) pthread_cond_wait(&more, &lock);
      pthread_mutex_unlock(&lock);
    }
    ${net}_work(tape_now, (int)(intptr_t)number, ${NET}_THREADS);
  }
  return NULL;
}
static void run(void *user, void *tape) {
  (void)user;
  tape_now = tape;
  pthread_mutex_lock(&lock);
  __atomic_add_fetch(&job, 1, __ATOMIC_RELEASE);
  pthread_cond_broadcast(&more);
  pthread_mutex_unlock(&lock);
  ${net}_work(tape, 0, ${NET}_THREADS);
}
static void give_way(void) { sched_yield(); }
static int start_threads(${net} *net) {
  pthread_t thread;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, 128 << 10)) return 1;
  for (intptr_t k = 1; k < ${NET}_THREADS; k++)
    if (pthread_create(&thread, &attributes, worker, (void *)k)) return 1;
  ${net}_threads(net, run, NULL, give_way);
  return 0;
}
