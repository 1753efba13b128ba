package dev.loupe.cuda.ptx;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The registers of an entry: those that it declares, then constants and special registers. */
final class Registers implements Statement.Registers {
  /** Registers that tell a thread where it is. */
  enum Special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    // the driver's: where a cooperative grid finds the workspace of its barrier
    ENVREG1,
    ENVREG2;

    static final Map<String, Special> BY_NAME = new HashMap<>();

    static {
      for (Special special : values()) {
        String name = special.name().toLowerCase(Locale.ROOT);
        BY_NAME.put("%" + name.replace('_', '.'), special);
      }
    }
  }

  private final List<Integer> widths = new ArrayList<>();
  private final Map<Long, Integer> constants = new HashMap<>();
  private final Map<Special, Integer> specials = new HashMap<>();

  /** A new register; returns its number. */
  int add(int bits) {
    widths.add(bits);
    return widths.size() - 1;
  }

  int constant(long value) {
    return constants.computeIfAbsent(value, _ -> add(64));
  }

  int special(Special special) {
    return specials.computeIfAbsent(special, _ -> add(32));
  }

  @Override
  public int bits(int register) {
    return widths.get(register);
  }

  int size() {
    return widths.size();
  }

  Map<Long, Integer> constants() {
    return constants;
  }

  Map<Special, Integer> specials() {
    return specials;
  }
}
