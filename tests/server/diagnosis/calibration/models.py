"""Small models and the tasks they learn, for real trainings that take seconds on one core."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = tuple[Tensor, Tensor]
Task = tuple[nn.Module, Iterator[Batch], Callable[[Tensor, Tensor], Tensor]]
"""A model, endless batches of its task, and the loss of its output."""


def mlp(
    activation: Callable[[], nn.Module] = nn.ReLU, *, depth: int = 3, width: int = 48, head_bias: bool = True
) -> Task:
    """Classify points by a random teacher."""
    sizes = [20, *[width] * depth]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), activation()]
    model = nn.Sequential(*layers, nn.Linear(sizes[-1], 10, bias=head_bias))
    teacher = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10)).requires_grad_(False)

    def batches() -> Iterator[Batch]:
        while True:
            x = torch.randn(32, 20)
            yield x, (6 * teacher(x)).argmax(1)

    return model, batches(), functional.cross_entropy


def cnn() -> Task:
    """Tell which of ten patterns is in a noisy picture."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    patterns = torch.randn(10, 1, 12, 12)

    def batches() -> Iterator[Batch]:
        while True:
            y = torch.randint(10, (32,))
            yield patterns[y] + 1.5 * torch.randn(32, 1, 12, 12), y

    return model, batches(), functional.cross_entropy


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer on residual paths, pre-norm, separate projections with bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # [batch, time, width]
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(2, (2, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    def __init__(self, num_characters: int, width: int, num_blocks: int, context: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(num_characters, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(num_blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_characters)

    def forward(self, tokens: Tensor) -> Tensor:  # [batch, time] -> [batch, time, num_characters]
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class Lstm(nn.Module):
    def __init__(self, num_characters: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(num_characters, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, num_characters)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.token(tokens))[0])  # type: ignore[no-any-return]


def transformer(*, width: int = 32, num_blocks: int = 2, context: int = 32) -> Task:
    """Predict the next character of the English that ships with CPython."""
    tokens, num_characters = _text()
    return Transformer(num_characters, width, num_blocks, context), _windows(tokens, 8, context), _next_character


def lstm(*, context: int = 120) -> Task:
    """The same over long sequences."""
    tokens, num_characters = _text()
    return Lstm(num_characters, 32), _windows(tokens, 8, context), _next_character


def _text() -> tuple[Tensor, int]:
    text = "".join(topics.values())
    index = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([index[character] for character in text]), len(index)


def _windows(tokens: Tensor, batch_size: int, context: int) -> Iterator[Batch]:
    offsets = torch.arange(context + 1)
    while True:
        starts = torch.randint(len(tokens) - context - 1, (batch_size, 1))
        windows = tokens[starts + offsets]
        yield windows[:, :-1], windows[:, 1:]


def _next_character(logits: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def group_policy() -> Task:
    """Answers rewarded within a group: where all earn the same, there is nothing to learn from, and no gradient."""
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    best = torch.randint(4, (64,))
    questions = torch.randn(64, 6)

    def batches() -> Iterator[Batch]:
        while True:
            number = torch.randint(64, (1,))
            yield questions[number].expand(8, 6), best[number].expand(8)

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        answers = torch.distributions.Categorical(logits=logits.detach() * 0.7).sample()  # type: ignore[no-untyped-call]
        rewards = (answers == y).float()
        advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        chosen = torch.log_softmax(logits, 1).gather(1, answers[:, None])[:, 0]
        return -(advantage * chosen).mean()  # type: ignore[no-any-return]

    return model, batches(), loss
