"""`trepak elastic`: starts a job whose hosts come and go, and lets hosts leave in good order.

- `listing`: what the user's script, or file, lists.
- `roster`: which of these hosts the job is to have; pure state.
- `discovery`: the script by which Horovod learns that.
- `server`: the port on which ranks ask for it.
- `job`: keeps listing, roster and server going beside horovodrun.
- `commands`: the command line.
"""
