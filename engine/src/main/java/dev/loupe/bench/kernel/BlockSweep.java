package dev.loupe.bench.kernel;

import dev.loupe.Precision;
import java.util.List;

/**
 * A device whose candidates are those of its sweep over block sizes.
 *
 * @param device closed with this
 */
public record BlockSweep(Device device) implements Device {
  @Override
  public String backend() {
    return device.backend();
  }

  @Override
  public String name() {
    return device.name();
  }

  @Override
  public boolean emulated() {
    return device.emulated();
  }

  @Override
  public List<Candidate> candidates(Operation operation, Precision precision) {
    return device.sweep(operation, precision);
  }

  @Override
  public List<Shape> usualShapes(Operation operation) {
    return device.usualShapes(operation);
  }

  @Override
  public Roofline measure(Precision precision) {
    return device.measure(precision);
  }

  @Override
  public void close() {
    device.close();
  }
}
