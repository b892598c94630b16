/* Collectives of an MPI library, measured as acc-bench-collectives measures ours.

     mpicc -O2 collectives_mpi.c -o collectives_mpi && mpirun -np 4 ./collectives_mpi BUDGET_MS barrier allreduce:65536 …

   A batch is a number of calls back to back on every rank, after a barrier; its latency is the time from the first
   rank's start to the last one's end, a call. Printed is the median over the batches, in microseconds, one JSON line a
   point. Sizes in bytes: of the buffer (all-reduce, broadcast), of all ranks' shares together (all-gather, gather).
   Each point's result is checked once before it is timed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostBatches = 200, kLarge = 1 << 20 };

static int rank, ranks;
static float *in, *out;

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static long peak_kb(void) {
  char line[256];
  long kb = 0;
  FILE* status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (sscanf(line, "VmHWM: %ld", &kb) == 1) break;
  if (status) fclose(status);
  return kb;
}

static void call(const char* op, long bytes) {
  const int count = (int)(bytes / (long)sizeof(float)), share = count / ranks;
  if (!strcmp(op, "allreduce")) MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (!strcmp(op, "broadcast")) MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  else if (!strcmp(op, "allgather")) MPI_Allgather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD);
  else if (!strcmp(op, "gather")) MPI_Gather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, 0, MPI_COMM_WORLD);
  else MPI_Barrier(MPI_COMM_WORLD);
}

/* Small whole numbers: their sum is exact in any order. */
static float value(int i, int r) { return (float)((i * 7 + r * 13) % 31); }

static long wrong_results(const char* op, long bytes) {
  const int count = (int)(bytes / (long)sizeof(float)), share = count / ranks;
  long wrong = 0;
  for (int i = 0; i < count; ++i) in[i] = value(i, rank), out[i] = -1;
  call(op, bytes);
  for (int i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(i, r);
    if (!strcmp(op, "allreduce")) wrong += in[i] != sum;
    if (!strcmp(op, "broadcast")) wrong += in[i] != value(i, 0);
    if ((!strcmp(op, "allgather") || (!strcmp(op, "gather") && rank == 0)) && i < share * ranks)
      wrong += out[i] != value(i % share, i / share);
  }
  memset(in, 0, (size_t)bytes);
  return wrong;
}

static double batch(const char* op, long bytes, int calls) {
  double edge[2], all[2];
  MPI_Barrier(MPI_COMM_WORLD);
  edge[0] = -now_us();
  for (int i = 0; i < calls; ++i) call(op, bytes);
  edge[1] = now_us();
  MPI_Allreduce(edge, all, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD); /* one machine, one clock */
  return (all[1] + all[0]) / calls;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void measure(const char* op, long bytes, double budget_ms) {
  double took[kMostBatches];
  long mine = wrong_results(op, bytes), wrong = 0;
  MPI_Reduce(&mine, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  batch(op, bytes, 1);
  double estimate = batch(op, bytes, bytes >= kLarge ? 1 : 5);
  if (estimate < 0.2) estimate = 0.2;
  int calls = bytes >= kLarge ? 1 : (int)(4000 / estimate), batches;
  calls = calls < 1 ? 1 : calls > 2000 ? 2000 : calls;
  batches = (int)(budget_ms * 1000 / (estimate * calls));
  batches = batches < 3 ? 3 : batches > kMostBatches ? kMostBatches : batches;
  for (int i = 0; i < batches; ++i) took[i] = batch(op, bytes, calls);
  if (rank) return;
  qsort(took, (size_t)batches, sizeof *took, ascending);
  printf("{\"op\":\"%s\",\"bytes\":%ld,\"ranks\":%d,\"lat_us_median\":%.3f,\"wrong\":%ld}\n", op, bytes, ranks, took[batches / 2], wrong);
  fflush(stdout);
}

int main(int argc, char** argv) {
  size_t most = 4096;
  for (int i = 2; i < argc; ++i) {
    const char* colon = strchr(argv[i], ':');
    if (colon && (size_t)atol(colon + 1) > most) most = (size_t)atol(colon + 1);
  }
  in = malloc(most), out = malloc(most);
  if (argc < 3 || !in || !out) return 2;
  memset(in, 0, most), memset(out, 0, most);
  const long before = peak_kb(); /* what the library adds from here on is its own */
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 2; i < argc; ++i) {
    char op[32];
    long bytes = 0;
    if (sscanf(argv[i], "%31[a-z]:%ld", op, &bytes) >= 1) measure(op, bytes, atof(argv[1]));
  }
  long grown = peak_kb() - before, worst = 0;
  MPI_Reduce(&grown, &worst, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("{\"op\":\"rss\",\"bytes\":0,\"ranks\":%d,\"rss_over_buffers_kb_max\":%ld}\n", ranks, worst);
  MPI_Finalize();
  return 0;
}
