package dev.loupe.kernels;

import dev.loupe.kernels.ptx.Module;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/** The PTX of all kernels as the build ships it, parsed a kernel at a time. */
final class ShippedPtx {
  private static final String ENTRY = ".visible .entry ";

  private final Map<String, String> texts = new HashMap<>(); // of a kernel alone
  private final Map<String, Module.Entry> entries = new HashMap<>();

  ShippedPtx() {
    for (String source : KernelImages.built().sources()) {
      String file = file(source);
      int next = file.indexOf(ENTRY);
      String header = file.substring(0, Math.max(next, 0)); // holds for all kernels
      while (next >= 0) {
        int start = next;
        next = file.indexOf(ENTRY, start + 1);
        String text = file.substring(start, next < 0 ? file.length() : next);
        texts.put(text.substring(ENTRY.length(), text.indexOf('(')), header + text);
      }
    }
  }

  /** As for an old driver, which has to be given PTX. */
  private static String file(String source) {
    return new String(
        KernelImages.load(KernelImages.built(), source, 11_000, 80), StandardCharsets.UTF_8);
  }

  /** Names of all kernels. */
  Set<String> kernels() {
    return texts.keySet();
  }

  /** Replaces what a regular expression finds in the text of a kernel, once at least. */
  void mutate(String kernel, String expression, String by) {
    String mutated = text(kernel).replaceAll(expression, by);
    if (mutated.equals(text(kernel))) {
      throw new IllegalArgumentException("%s has no %s".formatted(kernel, expression));
    }
    texts.put(kernel, mutated);
  }

  Module.Entry entry(String kernel) {
    return entries.computeIfAbsent(kernel, name -> Module.parse(text(name)).entry(name));
  }

  private String text(String kernel) {
    String text = texts.get(kernel);
    if (text == null) {
      throw new IllegalArgumentException("there is no PTX of " + kernel);
    }
    return text;
  }
}
