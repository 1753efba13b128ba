package dev.loupe.cuda.probe;

import dev.loupe.cuda.driver.ImageArchive;
import dev.loupe.cuda.driver.KernelImages;
import dev.loupe.cuda.ptx.Module;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.UnaryOperator;

/** The PTX of all kernels, parsed a kernel at a time. */
public final class KernelPtx {
  private static final String ENTRY = ".visible .entry ";

  private final Map<String, String> texts = new HashMap<>(); // of a kernel alone
  private final Map<String, Module.Entry> entries = new HashMap<>();

  private KernelPtx(List<String> sources, UnaryOperator<String> text) {
    for (String source : sources) {
      String file = text.apply(source);
      int next = file.indexOf(ENTRY);
      String header = file.substring(0, Math.max(next, 0)); // holds for all kernels
      while (next >= 0) {
        int start = next;
        next = file.indexOf(ENTRY, start + 1);
        String kernel = file.substring(start, next < 0 ? file.length() : next);
        texts.put(kernel.substring(ENTRY.length(), kernel.indexOf('(')), header + kernel);
      }
    }
  }

  /** What an old driver, which knows no cubins of newer cards, is given. */
  public static KernelPtx ofTheJar() {
    ImageArchive jar = KernelImages.built();
    return new KernelPtx(
        jar.sources(),
        source -> new String(KernelImages.load(jar, source, 11_000, 80), StandardCharsets.UTF_8));
  }

  /**
   * What nvcc makes of the sources, e.g. for {@code compute_75}, of which the jar has cubins alone.
   */
  public static KernelPtx madeFor(String target, Path work) {
    return new KernelPtx(
        KernelImages.built().sources(),
        source -> Nvcc.ptx(source + ".cu", target, work, ProbePtx.HEADERS));
  }

  /** Names of all kernels. */
  public Set<String> kernels() {
    return texts.keySet();
  }

  /** Replaces what a regular expression finds in the text of a kernel, once at least. */
  public void mutate(String kernel, String expression, String by) {
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
