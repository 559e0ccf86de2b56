from refimpl import slots


class Mine(slots.Offload):
    name = "mine"
    summary = "maps of more than 300 MiB wait on the host"
    needs = frozenset({"release"})  # from the liveness: a map's bytes are freed once it is copied
    offers = frozenset({"offload"})  # to a prefetch

    def bind(self, context):
        leaves = slots.Departures()
        for x in context.maps_across():  # what forward computes and backward reads again
            if x.kind == "map" and x.nbytes > 300 << 20:
                leaves.add(context.last_forward_use(x), x, "a large map")
        return leaves
