"""`trepak lab`: hosts, a switch with strict priorities and uneven workers, on one Linux machine.

- `topology`: what a lab is: names, addresses, rates; pure values.
- `network`: makes and removes it: network namespaces, a bridge, traffic control.
- `state`: which labs are up, across processes and crashes.
- `job`: runs a command's ranks on the hosts.
- `commands`: the command line.
"""
