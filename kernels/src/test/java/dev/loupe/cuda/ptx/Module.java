package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.PtxException;
import java.util.List;
import java.util.Map;

/**
 * A file of PTX.
 *
 * @param target e.g. {@code sm_80}
 * @param entries the kernels by name
 */
public record Module(String target, Map<String, Entry> entries) {
  public Module {
    entries = Map.copyOf(entries);
  }

  /**
   * A kernel.
   *
   * @param parameters in order
   * @param maxThreads of a block, by {@code .maxntid}; 1024 where it isn't said
   */
  public record Entry(
      String name,
      List<Parameter> parameters,
      Registers registers,
      int maxThreads,
      List<Step> code) {
    public Entry {
      parameters = List.copyOf(parameters);
      code = List.copyOf(code);
    }

    /** Bytes of the parameters' block. */
    int parameterBytes() {
      return parameters.isEmpty() ? 0 : parameters.getLast().end();
    }
  }

  /**
   * A parameter of a kernel.
   *
   * @param offset in the block of all
   */
  public record Parameter(int offset, int bytes) {
    int end() {
      return offset + bytes;
    }
  }

  /** Parses a file, down to what each instruction does. */
  public static Module parse(String text) {
    return new Parser(text).module();
  }

  /** The kernel {@code name}. */
  public Entry entry(String name) {
    Entry entry = entries.get(name);
    if (entry == null) {
      throw new PtxException("there is no entry %s in this PTX for %s".formatted(name, target));
    }
    return entry;
  }
}
