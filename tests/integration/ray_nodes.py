"""A Ray cluster of three nodes on the loopback, for as long as its input is open; "take" takes one node away."""

import sys

from cruciform.training.backends.ray import import_ray

import_ray()  # sets Ray to the loopback before it is loaded

from ray.cluster_utils import Cluster  # noqa: E402


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    others = [cluster.add_node(num_cpus=1) for _ in range(2)]
    print(f"> {cluster.address}", flush=True)
    for _ in sys.stdin:
        cluster.remove_node(others.pop(), allow_graceful=False)
        print("> taken", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
