"""Writes nodes.json: outputs and gradients of graph networks by PyTorch Geometric's layers on a small graph, in double
precision. Run with torch 2.11 and torch-geometric 2.8."""
import json
import pathlib

import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
from torch_geometric.nn.models import MLP
from torch_geometric.nn.norm import BatchNorm

torch.set_default_dtype(torch.float64)
torch.manual_seed(7)
NODES, FEATURES, CLASSES = 12, 5, 3
# Node 11 has no neighbours, one pair is there twice, and nothing is its own neighbour.
pairs = [(s, t) for t in range(11) for s in range(11) if s != t and (s * 7 + t * 5) % 4 < 2]
pairs.insert(9, pairs[8])
edge_index = torch.tensor(pairs).t()
x = torch.randn(NODES, FEATURES)


class Stack(torch.nn.Module):
    def __init__(self, convs, act, norms=()):
        super().__init__()
        self.convs, self.norms, self.act = torch.nn.ModuleList(convs), torch.nn.ModuleList(norms), act

    def forward(self, x):
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i + 1 < len(self.convs):
                x = self.act(self.norms[i](x) if self.norms else x)
        return x


def gin(train_eps, norm):
    convs = [GINConv(MLP([a, 4, b], norm=norm), train_eps=train_eps) for a, b in ((FEATURES, 4), (4, CLASSES))]
    return Stack(convs, F.relu, [BatchNorm(4)] if norm else [])


cases = [
    ("sage", {"hidden": 4}, Stack([SAGEConv(FEATURES, 4), SAGEConv(4, CLASSES)], F.relu)),
    ("sage", {"hidden": 4, "aggregator": "max"},
     Stack([SAGEConv(FEATURES, 4, aggr="max"), SAGEConv(4, CLASSES, aggr="max")], F.relu)),
    ("sage", {"layers": 1, "aggregator": "sum"}, Stack([SAGEConv(FEATURES, CLASSES, aggr="sum")], F.relu)),
    ("gcn", {"hidden": 4}, Stack([GCNConv(FEATURES, 4), GCNConv(4, CLASSES)], F.relu)),
    ("gcn", {"hidden": 7}, Stack([GCNConv(FEATURES, 7), GCNConv(7, CLASSES)], F.relu)),
    ("gat", {"hidden": 2, "heads": 3, "output_heads": 2},
     Stack([GATConv(FEATURES, 2, heads=3), GATConv(6, CLASSES, heads=2, concat=False)], F.elu)),
    ("gat", {"layers": 1, "negative_slope": 0.05}, Stack([GATConv(FEATURES, CLASSES, concat=False, negative_slope=0.05)], F.elu)),
    ("gin", {"hidden": 4}, gin(False, "batch_norm")),
    ("gin", {"hidden": 4, "train_eps": True, "batch_norm": False}, gin(True, None)),
]
result = []
for model, options, network in cases:
    with torch.no_grad():
        for parameter in network.parameters():  # biases and eps away from 0
            parameter.add_(0.1 * torch.randn_like(parameter))
    tensors = {name: tensor.detach().clone() for name, tensor in network.state_dict().items() if tensor.is_floating_point()}
    network.train()
    output = network(x)
    weights = torch.arange(output.numel()).sin().view(output.shape)
    (output * weights).sum().backward()
    result.append({
        "model": model, "options": options,
        "tensors": {name: {"shape": list(tensor.shape), "values": tensor.flatten().tolist()} for name, tensor in tensors.items()},
        "output": output.detach().flatten().tolist(),
        "gradients": {name: parameter.grad.flatten().tolist() for name, parameter in network.named_parameters()},
        "buffers_after": {name: tensor.flatten().tolist() for name, tensor in network.named_buffers() if tensor.is_floating_point()},
    })
path = pathlib.Path(__file__).with_suffix(".json")
graph = {"features": x.flatten().tolist(), "nodes": NODES, "width": FEATURES, "classes": CLASSES, "edges": pairs}
path.write_text('{"graph": ' + json.dumps(graph) + ',\n"cases": [\n' + ",\n".join(json.dumps(case) for case in result) + "\n]}\n")
