"""Times of a step of training on GPUs: products, attention, memory, wires, launches.

Plain functions of numbers, without instances or plans: the cost tables of instances
and the predictions of measured runs are both made of them. Times are in seconds, rates
in units a second, sizes in bytes.
"""
