/* What each rank of an MPI program sees; a ring of messages and an all-reduce prove that they are connected.
   HELLO_EXIT=CODE: rank 1 ends with it after the first collective of the first attempt.
   HELLO_ABORT=CODE: the last rank calls MPI_Abort, the others wait for ever. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  int rank, size, sum = 0, received = -1;
  MPI_Comm node;
  int local_rank, local_size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local_rank);
  MPI_Comm_size(node, &local_size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  const char* code = getenv("HELLO_EXIT");
  if (code && rank == 1 && atoi(getenv("ACC_ROUND")) == 0) exit(atoi(code));
  code = getenv("HELLO_ABORT");
  if (code && rank == size - 1) MPI_Abort(MPI_COMM_WORLD, atoi(code));
  if (code) pause();
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &received, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  printf("rank %d of %d, %d of %d here, sum %d, from %d\n", rank, size, local_rank, local_size, sum, received);
  MPI_Finalize();
  return 0;
}
