import torch

# One thread, whatever the machine: neither bits nor times depend on what else it does.
torch.set_num_threads(1)
