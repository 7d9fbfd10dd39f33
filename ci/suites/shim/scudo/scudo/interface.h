// See tests/scudo_unit_test.h.
