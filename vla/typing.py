"""The shape letters of every signature, in one place.

====  ==========================================
b     batch
t     tokens (time)
h     heads
d     width of a head's keys and queries
dv    width of a head's values
c     chunks
p     pairs stored so far
====  ==========================================

``Float[Tensor, "*b d"]`` reads: any leading batch axes, then one key. States are ``S [*b, dv, d]``
(so that ``S q`` is a read) and ``A [*b, d, d]``; sequences are ``[b, t, h, d]``.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Tensor"]
