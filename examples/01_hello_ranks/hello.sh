#!/bin/sh
# Any program can be a worker. This one says who it is, from the variables that every worker gets (docs/environment.md).
echo "rank $RANK of $WORLD_SIZE, local rank $LOCAL_RANK of $LOCAL_WORLD_SIZE, master $MASTER_ADDR"
