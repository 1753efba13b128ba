package dev.loupe.cuda.selftest;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.kernels.KernelCatalogue;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * Lets the self-test look at known bugs, in a JVM of its own on the stand-in driver: one after the
 * other is put in the place of the right kernels.
 */
final class KernelMutants {
  private static final Path LIST = Path.of("src", "test", "emulator", "mutants.tsv");

  /** Orders of threads in which a barrier is missed; copies come as late as they may. */
  private static final List<Emulator.Schedule> SCHEDULES =
      List.of(Emulator.Schedule.REVERSE, Emulator.Schedule.RANDOM);

  private KernelMutants() {}

  /**
   * A line of mutants.tsv.
   *
   * @param kernels part of the names of those that it replaces
   * @param condemned variants with their elements, e.g. {@code v4 f16}
   * @param isFault whether only an error of a launch condemns them
   */
  record Mutant(String name, String kernels, Set<String> condemned, boolean isFault) {
    private static Mutant of(String line) {
      String[] columns = line.split("\t", -1);
      boolean isFault = columns[4].startsWith("fault ");
      String condemned = columns[4].replace("fault ", "").replace("none", "");
      return new Mutant(
          columns[0],
          columns[3],
          condemned.isEmpty() ? Set.of() : new TreeSet<>(List.of(condemned.split(", "))),
          isFault);
    }

    /** Its family: the one whose kernels' names begin so; attention where all of them are meant. */
    private String family() {
      return SelfTest.families().stream()
          .filter(f -> kernels.startsWith(f + "_"))
          .max(Comparator.comparingInt(String::length))
          .orElse("attention");
    }

    /** What is looked at: the family's variants, or graphs whose kernels start early. */
    private List<Variant> variants() {
      return condemned.contains("early f32") ? List.of(Trial.EARLY) : KernelCatalogue.of(family());
    }

    /** Whether a variant is looked at: right ones in other elements are those that always are. */
    private boolean concerns(Element element) {
      return condemned.isEmpty()
          ? kernels.contains("_" + element.suffix())
          : condemned.stream().anyMatch(c -> c.endsWith(" " + element.suffix()));
    }
  }

  /** All of mutants.tsv. */
  static List<Mutant> all() throws IOException {
    return Files.readAllLines(LIST).stream()
        .filter(line -> !line.startsWith("#") && !line.isBlank())
        .map(Mutant::of)
        .toList();
  }

  /**
   * Prints a line for each variant that is condemned.
   *
   * @param args folder of the libraries, names of the mutants
   */
  public static void main(String[] args) throws IOException {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    List<String> names = Arrays.asList(args).subList(1, args.length);
    Emulator.open().close();
    for (Mutant mutant : all()) {
      if (names.contains(mutant.name())) {
        Emulator.replaceKernels(Path.of(args[0], mutant.name() + ".so"));
        condemned(mutant)
            .forEach(
                (variant, why) ->
                    out.println(
                        "%s: %s: %s"
                            .formatted(
                                mutant.name(), variant, why.lines().findFirst().orElse(""))));
      }
    }
  }

  private static Map<String, String> condemned(Mutant mutant) {
    Map<String, String> condemned = new HashMap<>();
    for (Emulator.Schedule schedule : SCHEDULES) {
      Emulator.options(schedule, 1, false);
      for (Variant variant : mutant.variants()) {
        for (Element element : variant.elements()) {
          String name = variant.name() + " " + element.suffix();
          if (mutant.concerns(element) && !condemned.containsKey(name)) {
            String why = test(variant, element);
            if (!why.isEmpty()) {
              condemned.put(name, why);
            }
          }
        }
      }
      if (condemned.keySet().containsAll(mutant.condemned())) {
        break;
      }
    }
    return condemned;
  }

  /** Empty if right. A GPU of its own, since what is wrong may cost it. */
  private static String test(Variant variant, Element element) {
    try (Gpu gpu = Emulator.open()) {
      SelfTest.Finding finding = SelfTest.of(gpu, variant, element);
      return finding.isRight() ? "" : finding.text();
    } catch (GpuException e) {
      return "fails: " + e.getMessage();
    } finally {
      Emulator.revive();
    }
  }

  /** What of the output of {@link #main} is not as the list has it. */
  static List<String> unexpected(List<Mutant> mutants, String output) {
    List<String> unexpected = new ArrayList<>();
    for (Mutant mutant : mutants) {
      Set<String> found = new TreeSet<>();
      for (String line : output.lines().toList()) {
        String[] parts = line.split(": ", 3);
        if (parts.length == 3 && parts[0].equals(mutant.name())) {
          found.add(parts[1]);
          if (!parts[2].startsWith(mutant.isFault() ? "fails: " : "WRONG: ")) {
            unexpected.add(line);
          }
        }
      }
      if (!found.equals(mutant.condemned())) {
        unexpected.add(
            "%s: %s are condemned, not %s".formatted(mutant.name(), found, mutant.condemned()));
      }
    }
    return unexpected;
  }
}
