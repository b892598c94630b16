/* Half of a round trip between ranks 0 and 1, in microseconds, for message sizes from 8 bytes to 1 MiB. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static char buffer[1 << 20];

int main(int argc, char** argv) {
  int rank;
  const int turns = 200;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int size = 8; size <= (int)sizeof buffer; size *= 8) {
    memset(buffer, rank, sizeof buffer);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < turns && rank < 2; i++) {
      if (rank == 0) MPI_Send(buffer, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
      MPI_Recv(buffer, size, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == 1) MPI_Send(buffer, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
    if (rank == 0) printf("%8d %10.2f\n", size, (MPI_Wtime() - began) * 1e6 / turns / 2);
  }
  MPI_Finalize();
  return 0;
}
