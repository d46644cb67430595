"""The smallest loop: fit a sine, clip at 1.0, watch it.

    python examples/minimal.py

Works with and without a server: without one the steps wait in .gradsight, and `gradsight sync` (or the next
`gradsight serve` in this folder) brings them later.
"""

import torch
from torch import nn

import gradsight

model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

run = gradsight.Run(project="examples", name="minimal")
monitor = gradsight.Monitor(model, optimizer, run=run, clip=1.0)

for _ in range(500):
    x = 6 * torch.rand(256, 1) - 3
    optimizer.zero_grad()
    with monitor.autocast():
        loss = nn.functional.mse_loss(model(x), torch.sin(x))
    monitor.step(loss)

run.finish()
