"""Proves a program right, or says what is wrong with it.

A program is a promise: thousands of iterations will replay it blindly.  It is right if, run twice in a row,

1. *order*: any two accesses to the same bytes, on the device, in pinned memory or in another tier, one of them a write,
   are ordered by the streams and the events (`happens_before.py`); kernels run on the stream 0, the work of the host's
   threads on theirs;
2. *lifetime*: nothing is touched before it is allocated or after it is freed, no two live blocks overlap, and
   everything is inside its arena (`memory.py`);
3. *values*: every call reads what the plain network's run would give it, and every call of the network runs, exactly
   once; a rebuild runs a forward call again, and nothing else may (`plain_run.py`);
4. *release*: everything managed is freed at the end;
5. *budget*: what is held stays within the budget, and its peak is what the program says; no tier holds more than the
   machine has of it.

Twice, because the second iteration starts where the first one ended: with its weights, its clocks, and nothing else.

The check runs through the instructions in the order of the list.  That is one of the orders in which the streams may
run them, and rule 1 makes all the others equal to it.  Of the planner it uses the instructions and nothing else: what
planned a program cannot vouch for it.  The program's machine says which algorithms there are, and what workspace each
needs.  The check takes time linear in the program's length.
"""

from refimpl.planner.verify.check import verify
from refimpl.planner.verify.proof import Proof, Unsafe

__all__ = ["Proof", "Unsafe", "verify"]
