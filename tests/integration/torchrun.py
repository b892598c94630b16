"""torchrun of the torch that is installed. Python from 3.11 on iterates flag enums without their zero and combined members, so that
torch 1.13 reads its default of --redirects and --tee as None there, and dies; here it is read as it is meant."""
from torch.distributed.elastic.multiprocessing.api import Std


def parse(_, words):
    if ":" not in words:
        return Std(int(words))
    return {int(rank): Std(int(value)) for rank, value in (word.split(":") for word in words.split(","))}


Std.from_str = classmethod(parse)

from torch.distributed.run import main

main()
