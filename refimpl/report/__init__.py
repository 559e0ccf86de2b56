"""Tables, pictures and JSON of a program and its timeline, and files that other tools open.

    figures, times      the data: memory by kind, the pool's holes, traffic; when steps run
    tables              a plan, its steps, a network's layers, setups side by side, as text
    json                a plan as one JSON document
    memory_pictures     memory over the steps; the blocks in the pool by address
    timeline_picture    the work of every stream over time
    comparison_picture  setups side by side (`comparison` has the figures)
    exports             for ui.perfetto.dev, PyTorch's memory viewer and RMM's tools
    notebook            helpers of the tutorials: tables, pictures, checks of exercises

Nothing is imported here: a command loads only the modules that it needs, and matplotlib only to draw.
"""
