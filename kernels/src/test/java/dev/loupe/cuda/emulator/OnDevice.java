package dev.loupe.cuda.emulator;

import dev.loupe.cuda.driver.CudaDriver;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.platform.commons.support.AnnotationSupport;

/** Skips a test, with the reason, where there is neither the emulator nor a card. */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@Tag("gpu") // run once more on a real card
@ExtendWith(OnDevice.Condition.class)
public @interface OnDevice {
  /** True if a real card will not do: the test looks into the emulator, or breaks the device. */
  boolean emulated() default false;

  /** Looks at the driver of this process. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      boolean emulated =
          AnnotationSupport.findAnnotation(context.getElement(), OnDevice.class)
              .map(OnDevice::emulated)
              .orElse(false);
      if (Emulator.isDriver()) {
        return ConditionEvaluationResult.enabled("on the emulator");
      }
      CudaDriver driver = CudaDriver.find();
      if (emulated || driver.cards().isEmpty()) {
        return ConditionEvaluationResult.disabled(
            "needs the emulator's folder first on LD_LIBRARY_PATH"
                + (emulated ? "" : ", or a card: the driver is " + driver.summary()));
      }
      return ConditionEvaluationResult.enabled("on " + driver.cards().get(0));
    }
  }
}
