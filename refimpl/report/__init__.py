"""What is shown of a program and its timeline, and what other tools can open.

    figures, times      the data: memory by kind, the pool's holes, traffic; when steps run
    tables              a plan, its steps, a network's layers, setups side by side, as text
    json                a plan as one JSON document
    memory_pictures     memory over the steps; where blocks lie in the pool
    timeline_picture    what every stream does when
    comparison_picture  setups side by side (`comparison` has the figures)
    chrome_trace        for ui.perfetto.dev and chrome://tracing
    torch_snapshot      for PyTorch's memory viewer
    rmm_log             for RMM's tools, and for our own replay

Nothing is imported here: a command loads what it shows, and matplotlib only where it draws.
"""

__all__ = [
    "chrome_trace", "comparison", "comparison_picture", "figures", "json", "markdown", "memory_pictures", "rmm_log",
    "style", "tables", "timeline_picture", "times", "torch_snapshot",
]  # fmt: skip
