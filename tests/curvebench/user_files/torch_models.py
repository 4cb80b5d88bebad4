"""Models of PyTorch as users write them: each with a loss (model, batch) -> number, and data."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Adding(torch.utils.data.Dataset):
    """Sequences of numbers, two of which are marked; the target is the sum of these two."""

    def __init__(self, count, length=6, seed=0):
        generator = torch.Generator().manual_seed(seed)
        values = torch.rand(count, length, generator=generator)
        marks = torch.stack([torch.randperm(length, generator=generator) for _ in range(count)]) < 2
        self.inputs, self.targets = torch.stack([values, marks], -1), (values * marks).sum(1)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, number):
        return {"inputs": self.inputs[number], "target": self.targets[number]}


class GRU(nn.Module):
    def __init__(self, hidden=5):
        super().__init__()
        self.recurrent = nn.GRU(2, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, inputs):
        return self.out(self.recurrent(inputs)[0][:, -1])[:, 0]


def sum_loss(model, batch):
    return functional.mse_loss(model(batch["inputs"]), batch["target"])


def images(count, seed=0):
    pictures = drawn(count, 1, 8, 8, seed=seed)
    return pictures, (pictures > 0).to(pictures)


class UNet(nn.Module):
    """A U-Net with two levels."""

    def __init__(self, channels=4):
        super().__init__()
        self.first = self.block(1, channels)
        self.second = self.block(channels, 2 * channels)
        self.bottom = self.block(2 * channels, 4 * channels)
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 * n, n, 2, stride=2) for n in (2 * channels, channels)])
        self.merged = nn.ModuleList([self.block(2 * n, n) for n in (2 * channels, channels)])
        self.out = nn.Conv2d(channels, 1, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.GELU())

    def forward(self, x):
        first = self.first(x)
        second = self.second(functional.avg_pool2d(first, 2))
        x = self.bottom(functional.avg_pool2d(second, 2))
        for up, merged, skipped in zip(self.up, self.merged, (second, first), strict=True):
            x = merged(torch.cat([up(x), skipped], 1))
        return self.out(x)


def mask_loss(model, batch):
    pictures, masks = batch
    return functional.binary_cross_entropy_with_logits(model(pictures), masks)


def text(count, seed=0):
    return torch.randint(11, (count, 7), generator=torch.Generator().manual_seed(seed))


class GPT(nn.Module):
    """A transformer of one block, whose output layer is its embedding."""

    def __init__(self, width=8, words=11, context=6):
        super().__init__()
        self.token = nn.Embedding(words, width)
        self.position = nn.Parameter(0.1 * torch.randn(context, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.mixed, self.projected = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.token.weight
        self.register_buffer("past", torch.tril(torch.ones(context, context, dtype=torch.bool)))

    def forward(self, words):
        x = self.token(words) + self.position
        query, key, value = self.mixed(self.norms[0](x)).chunk(3, -1)
        scores = query @ key.mT / key.shape[-1] ** 0.5
        attention = scores.masked_fill(~self.past, float("-inf")).softmax(-1)
        x = x + self.projected(attention @ value)
        x = x + self.hidden(self.norms[1](x))
        return self.head(self.norms[2](x))


def next_word_loss(model, words):
    return functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())


def graphs(count, seed=0):
    edges = (drawn(count, 5, 5, seed=seed) > 0.5).float()
    edges = (edges + edges.mT).clamp(max=1)
    return {"edges": edges, "nodes": drawn(count, 5, 3, seed=seed + 1), "label": edges.sum((1, 2)) > 9}


class GraphNetwork(nn.Module):
    """Two rounds of messages on graphs that are given by their adjacency matrices."""

    def __init__(self, width=6):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, width), nn.Linear(width, width)])
        self.out = nn.Linear(width, 2)

    def forward(self, edges, nodes):
        degree = edges.sum(-1, keepdim=True) + 1
        for layer in self.layers:
            nodes = torch.relu(layer(nodes + edges @ nodes / degree))
        return self.out(nodes.mean(1))


def graph_loss(model, batch):
    return functional.cross_entropy(model(batch["edges"], batch["nodes"]), batch["label"].long())


def graph_metrics(model, batch):
    predicted = model(batch["edges"], batch["nodes"]).argmax(-1)
    return {"accuracy": (predicted == batch["label"]).to(batch["nodes"]).mean()}


class Rounded(torch.autograd.Function):
    """Round to halves; the gradient passes through unchanged."""

    @staticmethod
    def forward(ctx, x):
        return (2 * x).round() / 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Autoencoder(nn.Module):
    def __init__(self, codes=3):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, codes))
        self.decoder = nn.Sequential(nn.Linear(codes, 8), nn.Tanh(), nn.Linear(8, 6))

    def forward(self, x):
        codes = self.encoder(x)
        return codes, self.decoder(Rounded.apply(codes))


def points(count, seed=0):
    return torch.utils.data.TensorDataset(drawn(count, 6, seed=seed))


def two_term_loss(model, batch):
    """Reconstruction, and a penalty on codes that are large."""
    codes, outputs = model(batch[0])
    return functional.mse_loss(outputs, batch[0]) + 0.1 * codes.square().mean()


def reconstruction(model, batch):
    return {"error": functional.l1_loss(model(batch[0])[1], batch[0])}


class Normalized(nn.Module):
    """A module with batch normalization and dropout."""

    def __init__(self, rate=0.3):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(rate), nn.Linear(8, 2)
        )

    def forward(self, x):
        return self.layers(x)


def labelled(count, seed=0):
    inputs = drawn(count, 6, seed=seed)
    return inputs, (inputs.sum(1) > 0).long()


def label_loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 1)

    def forward(self, x):
        return self.linear(x)[:, 0]


def sums(count):
    inputs = drawn(count, 6)
    return inputs, inputs.sum(1)


def squared_loss(model, batch):
    """Three losses that PyTorch maps only if outputs and targets are mapped alike."""
    losses = functional.mse_loss, functional.smooth_l1_loss, functional.huber_loss
    return sum(loss(model(batch[0]), batch[1]) for loss in losses)


def undetermined(count):
    return torch.randn(count, 6), torch.zeros(count, dtype=torch.long)


def vector_loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


class Shared(nn.Module):
    """A module that is registered twice, shares its weight, and is computed again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second, self.third = self.first, nn.Linear(6, 6)
        self.third.weight = self.first.weight
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        x = checkpoint(lambda x: torch.tanh(self.second(x)), x, use_reentrant=False)
        return self.out(torch.tanh(self.third(self.first(x))))


class Scaled(nn.Module):
    """A module that draws random numbers of NumPy, and reads its inputs as an array of NumPy."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        x = x * float(np.abs(x.numpy()).mean())
        return self.out(x * np.random.uniform(0.5, 1.5) if self.training else x)  # noqa: NPY002


class Read(Scaled):
    def forward(self, x):
        return self.out(x * float(np.abs(x.numpy()).mean()))


class Counting(Scaled):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.out(x)


class Remembering(Scaled):
    mean = 0

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.out(x - self.mean)


class Overwriting(Scaled):
    def forward(self, x):
        return self.out(x.mul_(0.5))


class Lazy(nn.LazyLinear):
    def __init__(self):
        super().__init__(2)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(2, 2, sparse=True)

    def forward(self, x):
        return self.words((x[:, 0] > 0).long())


def penalized_loss(model, batch):
    penalty = sum(p.square().sum() for p in model.parameters() if p.requires_grad)
    return label_loss(model, batch) + 0.1 * penalty


def float_loss(model, batch):
    return label_loss(model, batch).item()


def plain_metrics(model, batch):
    return {"accuracy": (model(batch[0]).argmax(-1) == batch[1]).float().mean().item()}


def noisy(count):
    inputs, labels = labelled(count)
    labels[-1] = torch.randint(1000, ())
    return inputs, labels


def pairs(count):
    return list(zip(*labelled(count), strict=True))


def swapped(count):
    return [{"x": x, "y": y} if y else {"y": y, "x": x} for x, y in pairs(count)]


class Doubled(torch.utils.data.TensorDataset):
    def __getitem__(self, number):
        inputs, label = super().__getitem__(number)
        return 2 * inputs, label


def doubled(count):
    return Doubled(*labelled(count))
