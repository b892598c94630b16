#include <acc/acc.h>
#include <stdio.h>

int main(void) {
  acc_config config = ACC_CONFIG_INIT;
  acc_comm* comm = NULL;
  float x;
  config.timeout_ms = 20000;
  if (acc_init(&config, &comm) != ACC_OK) goto failed;
  x = (float)acc_rank(comm);
  if (acc_all_reduce(comm, &x, &x, 1, ACC_F32, ACC_AVG, NULL) != ACC_OK) goto failed;
  printf("C: rank %d of %d: mean %.1f\n", (int)acc_rank(comm), (int)acc_size(comm), (double)x);
  acc_finalize(comm);
  return 0;
failed:
  fprintf(stderr, "%s\n", acc_last_error());
  acc_finalize(comm);
  return 1;
}
