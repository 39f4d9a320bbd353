"""The classes that are batch norms, by what may be done with them.

A class derived from one of them may do something else, so these are compared by ``type(...) in``.
"""

from timm.layers import BatchNormAct2d
from torch import nn

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
REPLACEABLE = (*PLAIN, BatchNormAct2d)
"""Those whose place another norm can take."""
MERGEABLE = (*REPLACEABLE, nn.SyncBatchNorm)
"""Those that can be merged into the layer before them."""
