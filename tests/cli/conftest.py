from tests.logs.conftest import write as write
