package dev.loupe.cuda.kernels;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.emulator.Emulator;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;

/** The device and the kernels of linear maps; a test must close what it allocates. */
abstract class LinearFixture {
  static final Element F32 = Element.F32;
  static final int SEED = 20_260;

  static Gpu gpu;
  static LinearKernels linear;

  @BeforeAll
  static void open() {
    gpu = Emulator.open();
    linear = new LinearKernels(gpu);
  }

  @AfterAll
  static void close() {
    gpu.close();
  }

  @BeforeEach
  void forward() {
    Emulator.options(Emulator.Schedule.FORWARD, SEED, false);
  }

  @AfterEach
  void everyBufferIsClosed() {
    assertEquals(List.of(), gpu.liveBuffers());
  }
}
