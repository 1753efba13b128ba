package dev.loupe.kernels;

import dev.loupe.kernels.ptx.Module;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** The PTX of all kernels as the build ships it, parsed a kernel at a time. */
final class ShippedPtx {
  private final Map<String, String> texts = new HashMap<>(); // of a kernel alone
  private final Map<String, Module.Entry> entries = new HashMap<>();

  /**
   * @param computeCapability times ten, of which the PTX is
   */
  ShippedPtx(int computeCapability) {
    for (String source : KernelImages.sources()) {
      String file = text(source, computeCapability);
      // what is before the first kernel holds for all
      String[] parts = file.split("(?=\\.visible \\.entry )", -1);
      for (int i = 1; i < parts.length; i++) {
        String name = parts[i].substring(".visible .entry ".length(), parts[i].indexOf('('));
        texts.put(name, parts[0] + parts[i]);
      }
    }
  }

  /** An old driver, which has to be given PTX. */
  private static String text(String source, int computeCapability) {
    int driver = computeCapability >= 90 ? 12_000 : 11_000;
    byte[] image = KernelImages.load(source, driver, computeCapability).bytes();
    return new String(image, StandardCharsets.UTF_8);
  }

  Module.Entry entry(String kernel) {
    return entries.computeIfAbsent(
        kernel,
        name -> {
          String text = texts.get(name);
          if (text == null) {
            throw new IllegalArgumentException("there is no PTX of " + name);
          }
          return Module.parse(text).entry(name);
        });
  }
}
