package dev.loupe.cuda.ptx.text;

import java.util.Arrays;
import java.util.Locale;
import java.util.Optional;

/** The fundamental types of PTX that a register can hold. */
public enum Type {
  PRED(1),
  B8(8),
  B16(16),
  B32(32),
  B64(64),
  U8(8),
  U16(16),
  U32(32),
  U64(64),
  S8(8),
  S16(16),
  S32(32),
  S64(64),
  F16(16),
  BF16(16),
  F32(32),
  F64(64);

  private final int bits;

  Type(int bits) {
    this.bits = bits;
  }

  public static Optional<Type> of(String name) {
    return Arrays.stream(values())
        .filter(type -> type.name().toLowerCase(Locale.ROOT).equals(name))
        .findFirst();
  }

  public int bits() {
    return bits;
  }

  public int bytes() {
    return bits / 8;
  }

  public boolean isSigned() {
    return name().startsWith("S");
  }

  public boolean isFloat() {
    return this == F16 || this == BF16 || this == F32 || this == F64;
  }

  /** The value of the low bits of a register as an integer of this type. */
  public long integer(long register) {
    int unused = 64 - bits;
    return isSigned() ? register << unused >> unused : register << unused >>> unused;
  }
}
