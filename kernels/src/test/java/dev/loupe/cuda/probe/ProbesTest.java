package dev.loupe.cuda.probe;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.cuda.emulator.OnDevice;
import dev.loupe.cuda.ptx.text.PtxException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Each primitive of gpu.cuh: its PTX in the interpreter, plain loops, and the emulator agree. */
@Timeout(value = 9, unit = TimeUnit.MINUTES)
class ProbesTest {
  @ParameterizedTest
  @EnumSource
  void ptxAgreesWithPlainLoops(Probe probe) {
    for (ProbePtx ptx : ProbePtx.ALL) {
      ProbeDevice device = new ProbeDevice.Interpreted(ptx.module());
      if (device.has(probe.from())) {
        probe.check(device);
      } else {
        PtxException e = assertThrows(PtxException.class, () -> probe.check(device));
        assertTrue(e.toString().contains("trap in line"), e.toString());
      }
    }
  }

  @ParameterizedTest
  @EnumSource
  @OnDevice(emulated = true)
  void theEmulatorAgreesWithPlainLoops(Probe probe) {
    probe.check(new ProbeDevice.Emulated());
  }

  @Test
  void thePtxIsOfTheseSources() {
    for (ProbePtx ptx : ProbePtx.ALL) {
      assertTrue(
          ProbePtx.isOfTheseSources(ptx.text()),
          () ->
              ("%s was made of other sources: run this class with -Dexhaustive where nvcc is, and"
                      + " copy what it writes")
                  .formatted(ptx.fileName()));
    }
  }

  /** So that nothing in the files is written by hand. */
  @Test
  @Tag("exhaustive")
  void nvccMakesTheSamePtx() throws IOException {
    Path folder = Files.createDirectories(Path.of("target", "probes"));
    for (ProbePtx ptx : ProbePtx.ALL) {
      String made = Nvcc.ptx("probes.cu", ptx.target(), folder, ProbePtx.PROBES, ProbePtx.HEADERS);
      Path file = Files.writeString(folder.resolve(ptx.fileName()), ProbePtx.file(made));
      boolean same = release(made).equals(release(ptx.text()));
      assumeTrue(same || !ProbePtx.isOfTheseSources(ptx.text()), "nvcc is of another release");
      assertEquals(
          ProbePtx.file(made),
          ptx.text(),
          () -> "copy %s to src/test/resources/dev/loupe/cuda/probe".formatted(file));
    }
  }

  private static List<String> release(String ptx) {
    return ptx.lines().filter(line -> line.startsWith("// Cuda compilation tools")).toList();
  }
}
