"""The demo's trainings: small character-level transformers, trained for real through the public API.

    python -m gradsight_server.demo healthy --steps 2000        (GRADSIGHT_SERVER says where to)

The text is the English that ships with CPython. The only file of the server that imports torch and the hook; it runs
in processes of its own.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW

import gradsight


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training and what is (or is not) wrong with it."""

    name: str
    clip: float
    lr: float
    width: int = 64
    num_blocks: int = 3
    context: int = 64
    batch_size: int = 4
    precision: Literal["fp32", "fp16"] = "fp32"
    init_scale: float = 65536.0
    lr_goes_wrong_at: float = math.inf
    """From this share of the steps on, the learning rate is 1,000 times what it should be."""


TRAININGS = {
    training.name: training
    for training in (
        Training(name="healthy", clip=1.0, lr=2e-3),
        Training(name="too-tight-threshold", clip=0.02, lr=2e-3),
        # fp16 on a CPU is some twenty times slower than fp32: a smaller model keeps its steps below 150 ms.
        Training(
            name="fp16-lr-goes-wrong",
            clip=1.0,
            lr=1e-3,
            width=48,
            num_blocks=2,
            context=32,
            batch_size=8,
            precision="fp16",
            init_scale=2.0**24,
            lr_goes_wrong_at=0.6,
        ),
    )
}


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each on a residual path (pre-norm)."""

    def __init__(self, width: int, num_heads: int = 4) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # x: [batch, time, width]
        batch, time, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, time, 3, self.num_heads, width // self.num_heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        x = x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))
        return x


class CharacterModel(nn.Module):
    """Predicts the next character."""

    def __init__(self, num_characters: int, training: Training) -> None:
        super().__init__()
        self.token = nn.Embedding(num_characters, training.width)
        self.position = nn.Embedding(training.context, training.width)
        self.blocks = nn.ModuleList(Block(training.width) for _ in range(training.num_blocks))
        self.norm = nn.LayerNorm(training.width)
        self.head = nn.Linear(training.width, num_characters)

    def forward(self, tokens: Tensor) -> Tensor:  # tokens: [batch, time] int64 -> [batch, time, num_characters]
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]  # a Module's call is untyped


def batches(tokens: Tensor, training: Training) -> Iterator[tuple[Tensor, Tensor]]:
    """Random windows of the text and the same one character on, each [batch, context]."""
    offsets = torch.arange(training.context + 1)
    while True:
        starts = torch.randint(len(tokens) - training.context - 1, (training.batch_size, 1))
        windows = tokens[starts + offsets]
        yield windows[:, :-1], windows[:, 1:]


def train(training: Training, num_steps: int) -> None:
    """Train `num_steps` optimizer steps, watched by Gradsight."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = "".join(topics.values())
    characters = sorted(set(text))
    index = {character: number for number, character in enumerate(characters)}
    tokens = torch.tensor([index[character] for character in text])
    model = CharacterModel(len(characters), training)
    optimizer = AdamW(model.parameters(), lr=training.lr, fused=True)
    config = {"lr": training.lr, "clip": training.clip, "precision": training.precision, "width": training.width}
    run = gradsight.Run("demo", training.name, config=config, total_steps=num_steps, quiet=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=training.init_scale)
    monitor = gradsight.Monitor(
        model,
        optimizer,
        run=run,
        precision=training.precision,
        clip=training.clip,
        loss_scale=scaler if training.precision == "fp16" else "dynamic",
    )
    with run:
        for step, (x, y) in zip(range(num_steps), batches(tokens, training), strict=False):
            warm = min(1.0, (step + 1) / min(100, 1 + num_steps // 10))
            wrong = 1000.0 if step >= training.lr_goes_wrong_at * num_steps else 1.0
            optimizer.param_groups[0]["lr"] = training.lr * warm * wrong
            optimizer.zero_grad()
            with monitor.autocast():
                logits = model(x)
            loss = functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())
            monitor.step(loss)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("training", choices=sorted(TRAININGS))
    parser.add_argument("--steps", type=int, required=True)
    arguments = parser.parse_args()
    train(TRAININGS[arguments.training], arguments.steps)


if __name__ == "__main__":
    main()
